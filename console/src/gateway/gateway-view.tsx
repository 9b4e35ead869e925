/** One gateway: what it has said of itself and of its links, what is set of it, and its terminals. */

import { Fragment } from "preact";
import type { LinkName, NodeReport, Terminal } from "../api/types";
import { HealthBadge, VehicleTable } from "../fleet/vehicle-table";
import { useLive, useTick } from "../shell/context";
import { counted } from "../shell/counted";
import { instant } from "../shell/dates";
import { bps, bytes, seconds } from "../shell/format";
import { useMay } from "../shell/may-operate";
import { NotHere } from "../shell/not-here";
import type { Read } from "../shell/read";
import { hashOf } from "../shell/route";
import { Table, type Column } from "../shell/table";
import { ItselfCard } from "../terminal/itself";
import { SetAtGateway } from "../terminal/set-from-afar";
import { byBeam, type Gateway, gatewayOf, gatewaysOf, healthOfGateway, newestPlan, totalsOf, upOf, withoutTerminals } from "./gateways";

const LINKS: LinkName[] = ["forward", "return"];
const BEAM_COLUMNS: Column[] = ["Beam", ...["Terminals up", "To them", "From them", "Forward plan", "Return plan"].map((number) => ({ number }))];

interface Props {
  /** Its number, as the address has it. */
  of: string;
  /** What all gateways have said of themselves. */
  reports: Read<NodeReport[]>;
}

export function GatewayView({ of, reports }: Props) {
  const live = useLive();
  useTick(1000);
  const isOfWhole = useMay(({ tenant }) => !tenant);
  const node = Number(of);
  const said = reports.value?.find((one) => one.node === node);
  const gateway = gatewaysOf(live.fleet).get(node) ?? (said && withoutTerminals(node));
  if (!gateway) return <NotHere what={`gateway ${of}`} isReading={!reports.value && !reports.failure} />;
  const { terminals } = gateway;
  return (
    <div class="page">
      <h1>
        Gateway {node} <HealthBadge health={healthOfGateway(gateway, live.asOf())} />
      </h1>
      <p>
        {terminals.length === 0 ? (
          "No terminal is at it."
        ) : (
          <>
            {counted(terminals.length, "terminal")} at it, {upOf(live.fleet, terminals, live.asOf())} up, of{" "}
            <BeamLinks of={byBeam(terminals).keys()} />.
          </>
        )}
      </p>
      <div class="columns">
        <Heard of={gateway} />
        {isOfWhole && <ItselfCard node={node} said={reports.value && (said ?? { node, role: "gateway" })} failure={reports.failure} />}
        {isOfWhole && <SetAtGateway gateway={node} sends={gateway.own} />}
      </div>
      <div class="columns">
        {LINKS.map((link) => (
          <LinkCard key={link} of={terminals} link={link} />
        ))}
      </div>
      <Beams of={terminals} />
      <h2>Its terminals</h2>
      <VehicleTable wants={(one) => gatewayOf(one) === node} />
    </div>
  );
}

/** The names of beams, each with a link to its page. */
export function BeamLinks({ of }: { of: Iterable<string> }) {
  const { fleet } = useLive();
  return (
    <>
      {[...of].map((beam, place) => (
        <Fragment key={beam}>
          {place > 0 && ", "}
          <a href={hashOf("beams", beam)}>{fleet.beams.get(beam)?.name ?? beam}</a>
        </Fragment>
      ))}
    </>
  );
}

function Heard({ of: { node, heardMs, own } }: { of: Gateway }) {
  const live = useLive();
  return (
    <section class="card" aria-labelledby="heard">
      <h2 id="heard">Heard</h2>
      <dl class="facts">
        <dt>Node</dt>
        <dd>ipn:{node}.0</dd>
        <dt>Last report</dt>
        <dd>{heardMs === undefined ? "none of a link yet" : `${instant(heardMs)}, ${seconds(live.now() - heardMs)} ago`}</dd>
        {own && (
          <>
            <dt>Up for</dt>
            <dd>{seconds(own.uptime_ms)}, as it said then</dd>
            <dt>Its clock</dt>
            <dd>
              {own.synchronised ? "synchronised" : "not synchronised"}
              {typeof own.clock_offset_ms === "number" && `, ${own.clock_offset_ms} ms ahead of the service's`}
            </dd>
          </>
        )}
      </dl>
    </section>
  );
}

function LinkCard({ of: terminals, link }: { of: readonly Terminal[]; link: LinkName }) {
  const live = useLive();
  const { links, ...sums } = totalsOf(live.fleet, terminals, link, live.asOf());
  const title = link === "forward" ? "Forward: to its terminals" : "Return: from its terminals";
  const states = Object.entries(links).filter(([, count]) => count > 0);
  return (
    <section class="card" aria-label={title}>
      <h2>{title}</h2>
      <dl class="facts">
        <dt>Links</dt>
        <dd>{states.map(([state, count]) => `${count} ${state}`).join(", ") || "none"}</dd>
        <dt>Carry</dt>
        <dd>
          {bps(sums.rateBps)} of {bps(sums.allowedBps)} allowed
        </dd>
        <dt>Waiting</dt>
        <dd>
          {bytes(sums.backloggedBytes)} in {counted(sums.streams, "stream")}
        </dd>
        <dt>In custody</dt>
        <dd>
          {counted(sums.storedBundles, "bundle")}, {bytes(sums.storedBytes)}
        </dd>
      </dl>
      <p class="note">The sums of the last reports; silent links are left out.</p>
    </section>
  );
}

/** What is carried for each beam, and by which plans: the newest that any of its links follows. */
function Beams({ of: terminals }: { of: readonly Terminal[] }) {
  const live = useLive();
  const { fleet } = live;
  const asOfMs = live.asOf();
  if (terminals.length === 0) return null;
  return (
    <section class="card" aria-labelledby="beams">
      <h2 id="beams">Beams, and the newest plans that their links follow</h2>
      <Table label="Beams of the gateway" columns={BEAM_COLUMNS}>
        {[...byBeam(terminals)].map(([beam, those]) => (
          <tr key={beam}>
            <th scope="row">
              <BeamLinks of={[beam]} />
            </th>
            <td class="number">
              {upOf(fleet, those, asOfMs)} of {those.length}
            </td>
            {LINKS.map((link) => (
              <td key={link} class="number">
                {bps(totalsOf(fleet, those, link, asOfMs).rateBps)}
              </td>
            ))}
            {LINKS.map((link) => (
              <td key={`plan ${link}`} class="number">
                {newestPlan(fleet, those, link) ?? "none"}
              </td>
            ))}
          </tr>
        ))}
      </Table>
    </section>
  );
}
