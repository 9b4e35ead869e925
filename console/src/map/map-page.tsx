import { VehicleTable } from "../fleet/vehicle-table";
import type { Route } from "../shell/route";

export function MapPage({ route }: { route: Route }) {
  const selected = route.of === undefined ? undefined : Number(route.of);
  return (
    <div class="map-page">
      <h1 class="hidden">Map</h1>
      <VehicleTable narrow selected={selected} />
    </div>
  );
}
