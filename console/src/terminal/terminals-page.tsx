import { VehicleTable } from "../fleet/vehicle-table";
import type { Route } from "../shell/route";
import TerminalView from "./terminal-view";

export default function TerminalsPage({ route }: { route: Route }) {
  if (route.of !== undefined) return <TerminalView key={route.of} route={route} />;
  return (
    <div class="page">
      <h1>Terminals</h1>
      <VehicleTable />
    </div>
  );
}
