import { VehicleTable } from "../fleet/vehicle-table";
import { later } from "../shell/later";
import type { Route } from "../shell/route";

const TerminalView = later(() => import("./terminal-view"), "the terminal");

export default function TerminalsPage({ route }: { route: Route }) {
  if (route.of !== undefined) return <TerminalView key={route.of} route={route} />;
  return (
    <div class="page">
      <h1>Terminals</h1>
      <VehicleTable />
    </div>
  );
}
