import type { Obstruction } from "../api/types";
import { countdown, nextBlockage } from "../fleet/blockage";
import { healthOf } from "../fleet/fleet";
import { HealthBadge } from "../fleet/vehicle-table";
import { useLive, useTick } from "../shell/context";
import { bps, seconds, speed } from "../shell/format";
import { hashOf } from "../shell/route";

interface Props {
  node: number | undefined;
  obstruction: Obstruction | undefined;
}

/** What is selected on the map: a vehicle, or an obstruction. */
export function Selected({ node, obstruction }: Props) {
  if (node !== undefined) return <SelectedVehicle node={node} />;
  if (!obstruction) return null;
  const { name, kind, certainty, source, lost, held } = obstruction.properties;
  const said = source === "learned" ? `learned: lost ${lost ?? 0} times there, held ${held ?? 0}` : `from ${source}`;
  return (
    <aside class="card" aria-label="Selected obstruction">
      <h2>{name || obstruction.id}</h2>
      <dl class="facts">
        <dt>Kind</dt>
        <dd>{kind}</dd>
        <dt>Known</dt>
        <dd>{said}</dd>
        <dt>Sure</dt>
        <dd>{Math.round(100 * certainty)} %</dd>
      </dl>
    </aside>
  );
}

function SelectedVehicle({ node }: { node: number }) {
  const live = useLive();
  useTick();
  const vehicle = live.fleet.vehicles.get(node);
  const next = vehicle && nextBlockage(vehicle, live.now());
  const position = vehicle?.position;
  const heading = position?.heading_deg;
  return (
    <aside class="card" aria-label="Selected vehicle">
      <h2>
        <a href={hashOf("terminals", node)}>{live.fleet.nameOf(node)}</a> <HealthBadge health={healthOf(vehicle)} />
      </h2>
      <dl class="facts">
        <dt>Speed, heading</dt>
        <dd>
          {speed(position?.speed_mps)}, {heading === null || heading === undefined ? "–" : `${Math.round(heading)}°`}
        </dd>
        <dt>Last fix</dt>
        <dd>{position ? `${seconds(live.now() - position.timeMs)} ago` : "none"}</dd>
        <dt>Blockage</dt>
        <dd>{next ? countdown(next) : "none expected"}</dd>
        <dt>To it, from it</dt>
        <dd>
          {bps(live.fleet.rates.newest(node, "forward"))}, {bps(live.fleet.rates.newest(node, "return"))}
        </dd>
      </dl>
    </aside>
  );
}
