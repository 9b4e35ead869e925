import { healthOf } from "../fleet/fleet";
import { useLive, useTick } from "../shell/context";
import { bps } from "../shell/format";
import { useKeptFocus } from "../shell/kept-focus";
import { hashOf, type Route } from "../shell/route";
import { Table } from "../shell/table";
import BeamView from "./beam-view";

export default function BeamsPage({ route }: { route: Route }) {
  useKeptFocus();
  return route.of === undefined ? <BeamList /> : <BeamView key={route.of} route={route} />;
}

function BeamList() {
  const live = useLive();
  useTick(1000);
  const { beams, terminals, vehicles } = live.fleet;
  const asOfMs = live.asOf();
  const count = new Map<string, { all: number; up: number }>();
  for (const terminal of terminals.values()) {
    const counted = count.get(terminal.beam) ?? { all: 0, up: 0 };
    counted.all += 1;
    if (healthOf(vehicles.get(terminal.node), asOfMs) === "up") counted.up += 1;
    count.set(terminal.beam, counted);
  }
  return (
    <div class="page">
      <h1>Beams</h1>
      {beams.size === 0 && <p>{live.following.mustRead ? "reading…" : "There are none: an operator makes them in the settings."}</p>}
      <Table label="List of beams" columns={["Beam", { number: "Forward" }, { number: "Return" }, { number: "Terminals up" }]}>
        {[...beams.values()].map((beam) => (
          <tr key={beam.id}>
            <th scope="row">
              <a href={hashOf("beams", beam.id)}>{beam.name}</a>
            </th>
            <td class="number">{bps(beam.forward_capacity_bps)}</td>
            <td class="number">{bps(beam.return_capacity_bps)}</td>
            <td class="number">
              {count.get(beam.id)?.up ?? 0} of {count.get(beam.id)?.all ?? 0}
            </td>
          </tr>
        ))}
      </Table>
    </div>
  );
}
