import type { ComponentChildren } from "preact";
import type { Beam, LinkName, Obstruction } from "../api/types";
import { countdown, nextBlockage } from "../fleet/blockage";
import { type Fleet, healthOf } from "../fleet/fleet";
import { HealthBadge } from "../fleet/vehicle-table";
import { useLive, useTick } from "../shell/context";
import { counted } from "../shell/counted";
import { bps, seconds, speed } from "../shell/format";
import { hashOf } from "../shell/route";
import type { Place } from "./fleet-map";
import { titleOf } from "./in-view";

interface Props {
  node: number | undefined;
  place: Place | undefined;
  /** Called when nothing is to be selected any more. */
  leave: () => void;
  /** Shown in the card of a vehicle. */
  children: ComponentChildren;
}

/** "Selected: Bus 11", for a screen reader. */
export function titleOfSelected(fleet: Fleet, node: number | undefined, place: Place | undefined): string {
  if (node !== undefined) return `Selected: ${fleet.nameOf(node)}`;
  if (!place) return "";
  return `Selected: ${"beam" in place ? place.beam.name : titleOf(place.obstruction)}`;
}

/** The card of what is selected on the map: a vehicle, an obstruction, or a beam. */
export function Selected({ node, place, leave, children }: Props) {
  const close = (
    <p>
      <button type="button" onClick={leave}>
        Close
      </button>
    </p>
  );
  if (node !== undefined) {
    return (
      <SelectedVehicle node={node}>
        {children}
        {close}
      </SelectedVehicle>
    );
  }
  if (!place) return null;
  if ("beam" in place) return <SelectedBeam beam={place.beam}>{close}</SelectedBeam>;
  return <SelectedObstruction obstruction={place.obstruction}>{close}</SelectedObstruction>;
}

function SelectedBeam({ beam, children }: { beam: Beam; children: ComponentChildren }) {
  const live = useLive();
  useTick(1000);
  const states = { up: 0, blocked: 0, down: 0, silent: 0 };
  for (const terminal of live.fleet.terminals.values()) {
    if (terminal.beam === beam.id) states[healthOf(live.fleet.vehicles.get(terminal.node), live.asOf())] += 1;
  }
  return (
    <aside class="card" aria-label="Selected beam">
      <h2>
        <a href={hashOf("beams", beam.id)}>{beam.name}</a>
      </h2>
      <dl class="facts">
        <dt>Forward, return</dt>
        <dd>
          {bps(beam.forward_capacity_bps)}, {bps(beam.return_capacity_bps)}
        </dd>
        <dt>Terminals</dt>
        <dd>
          {states.up} up, {states.blocked} blocked, {states.down} down, {states.silent} silent
        </dd>
      </dl>
      {children}
    </aside>
  );
}

function SelectedObstruction({ obstruction, children }: { obstruction: Obstruction; children: ComponentChildren }) {
  const { kind, certainty, corrected, source, lost, held } = obstruction.properties;
  // Tenants are not told the counts.
  const counts = lost === undefined ? "from lost links" : `lost ${counted(lost, "time")} there, held ${held ?? 0}`;
  const said = source === "learned" ? `learned: ${counts}` : `from ${source}`;
  return (
    <aside class="card" aria-label="Selected obstruction">
      <h2>{titleOf(obstruction)}</h2>
      <dl class="facts">
        <dt>Kind</dt>
        <dd>{kind}</dd>
        <dt>Known</dt>
        <dd>{said}</dd>
        <dt>Sure</dt>
        <dd>{Math.round(100 * (corrected ?? certainty))} %</dd>
      </dl>
      {children}
    </aside>
  );
}

function SelectedVehicle({ node, children }: { node: number; children: ComponentChildren }) {
  const live = useLive();
  useTick();
  const vehicle = live.fleet.vehicles.get(node);
  const next = vehicle && nextBlockage(vehicle, live.now());
  const position = vehicle?.position;
  const heading = position?.heading_deg;
  const health = healthOf(vehicle, live.asOf());
  const rate = (link: LinkName) => bps(health === "silent" ? undefined : live.fleet.rates.newest(node, link));
  return (
    <aside class="card" aria-label="Selected vehicle">
      <h2>
        <a href={hashOf("terminals", node)}>{live.fleet.nameOf(node)}</a> <HealthBadge health={health} />
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
          {rate("forward")}, {rate("return")}
        </dd>
      </dl>
      {children}
    </aside>
  );
}
