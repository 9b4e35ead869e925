import { VehicleTable } from "../fleet/vehicle-table";
import { later } from "../shell/later";
import type { Route } from "../shell/route";

const MapView = later(() => import("./map-view"), "large");

/** The list of vehicles shows at once; the map is loaded after it. */
export function MapPage({ route }: { route: Route }) {
  const node = Number(route.of);
  const selected = Number.isInteger(node) ? node : undefined;
  return (
    <div class="map-page">
      <h1 class="hidden">Map</h1>
      <VehicleTable narrow selected={selected} />
      <MapView selected={selected} />
    </div>
  );
}
