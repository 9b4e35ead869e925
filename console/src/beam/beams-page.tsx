import { healthOf } from "../fleet/fleet";
import { useLive, useTick } from "../shell/context";
import { bps } from "../shell/format";
import { hashOf, type Route } from "../shell/route";
import BeamView from "./beam-view";

export default function BeamsPage({ route }: { route: Route }) {
  return route.of === undefined ? <BeamList /> : <BeamView key={route.of} route={route} />;
}

function BeamList() {
  const live = useLive();
  useTick(1000);
  const { beams, terminals, vehicles } = live.fleet;
  const count = new Map<string, { all: number; up: number }>();
  for (const terminal of terminals.values()) {
    const counted = count.get(terminal.beam) ?? { all: 0, up: 0 };
    counted.all += 1;
    if (healthOf(vehicles.get(terminal.node)) === "up") counted.up += 1;
    count.set(terminal.beam, counted);
  }
  return (
    <div class="page">
      <h1>Beams</h1>
      <div class="scroll" tabIndex={0} role="region" aria-label="List of beams">
        <table>
          <thead>
            <tr>
              <th scope="col">Beam</th>
              <th scope="col" class="number">Forward</th>
              <th scope="col" class="number">Return</th>
              <th scope="col" class="number">Terminals up</th>
            </tr>
          </thead>
          <tbody>
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
          </tbody>
        </table>
      </div>
    </div>
  );
}
