import { VehicleTable } from "../fleet/vehicle-table";
import type { Route } from "../shell/route";

export function TerminalsPage({ route }: { route: Route }) {
  return route.of === undefined ? (
    <div class="page">
      <h1>Terminals</h1>
      <VehicleTable />
    </div>
  ) : (
    <div class="page" />
  );
}
