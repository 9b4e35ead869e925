import type { NodeReport } from "../api/types";
import { HealthBadge } from "../fleet/vehicle-table";
import { useLive, useTick } from "../shell/context";
import { seconds } from "../shell/format";
import { useMay } from "../shell/may-operate";
import { Failure, type Read, useRead } from "../shell/read";
import { hashOf, type Route } from "../shell/route";
import { Table, type Column } from "../shell/table";
import { lifetime } from "../terminal/lifetime";
import { BeamLinks, GatewayView } from "./gateway-view";
import { byBeam, type Gateway, gatewaysOf, healthOfGateway, upOf, withoutTerminals } from "./gateways";

const READ_MS = 15_000;
const COLUMNS: Column[] = ["Gateway", "State", { number: "Last heard" }, { number: "Terminals up" }, "Beams"];
const OF_ITSELF: Column[] = ["Software", "Certificate"];

export function GatewaysPage({ route }: { route: Route }) {
  const reports = useReports();
  if (route.of !== undefined) return <GatewayView key={route.of} of={route.of} reports={reports} />;
  return <GatewayList reports={reports} />;
}

/** What all gateways have said of themselves; the service shows a tenant nothing of it. */
function useReports(): Read<NodeReport[]> {
  const { client } = useLive();
  return useRead((signal) => client.all<NodeReport>("v1/nodes?role=gateway", "nodes", signal), "gateways", READ_MS);
}

function GatewayList({ reports }: { reports: Read<NodeReport[]> }) {
  const live = useLive();
  useTick(1000);
  const isOfWhole = useMay(({ tenant }) => !tenant);
  const gateways = gatewaysOf(live.fleet);
  const said = new Map<number, NodeReport>(reports.value?.map((one) => [one.node, one]));
  for (const node of said.keys()) if (!gateways.has(node)) gateways.set(node, withoutTerminals(node));
  const listed = [...gateways.values()].sort((a, b) => a.node - b.node);
  const isReading = live.following.mustRead || (!reports.value && !reports.failure);
  return (
    <div class="page">
      <h1>Gateways</h1>
      <Failure of={reports} />
      {listed.length === 0 && <p>{isReading ? "reading…" : "None is known: a gateway is, once it has a terminal."}</p>}
      <Table label="List of gateways" columns={isOfWhole ? [...COLUMNS, ...OF_ITSELF] : COLUMNS}>
        {listed.map((one) => (
          <Row key={one.node} of={one} said={said.get(one.node)} isOfWhole={isOfWhole} />
        ))}
      </Table>
    </div>
  );
}

function Row({ of: one, said, isOfWhole }: { of: Gateway; said: NodeReport | undefined; isOfWhole: boolean }) {
  const live = useLive();
  const asOfMs = live.asOf();
  return (
    <tr>
      <th scope="row">
        <a href={hashOf("gateways", one.node)}>Gateway {one.node}</a>
      </th>
      <td>
        <HealthBadge health={healthOfGateway(one, asOfMs)} />
      </td>
      <td class="number">{one.heardMs === undefined ? "–" : `${seconds(live.now() - one.heardMs)} ago`}</td>
      <td class="number">
        {upOf(live.fleet, one.terminals, asOfMs)} of {one.terminals.length}
      </td>
      <td>
        <BeamLinks of={byBeam(one.terminals).keys()} />
      </td>
      {isOfWhole && <td>{said?.version ?? "unknown"}</td>}
      {isOfWhole && <td>{said ? certificateOf(said, live.now()) : "unknown"}</td>}
    </tr>
  );
}

function certificateOf({ certificate_end }: NodeReport, nowMs: number): string {
  return certificate_end ? lifetime(Date.parse(certificate_end), nowMs) : "none";
}
