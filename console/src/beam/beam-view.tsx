/** One beam: the shares of its capacity, lending, debts, and the reasons; to a tenant, what concerns it. */

import { useContext, useEffect, useMemo, useState } from "preact/hooks";
import { textOf } from "../access/listed";
import { Rereading } from "../api/rereading";
import type { LinkName } from "../api/types";
import { VehicleTable } from "../fleet/vehicle-table";
import { Choice } from "../shell/choice";
import { SessionContext, useLive, useTick } from "../shell/context";
import { utcOn } from "../shell/dates";
import { bps } from "../shell/format";
import { NotHere } from "../shell/not-here";
import { hashOf, type Route } from "../shell/route";
import { Accounts } from "./accounts";
import "./beam.css";
import { CapacityView } from "./capacity-view";
import { type Composed, compose } from "./composed";
import { Interventions } from "./interventions";
import { PastView } from "./past-view";
import { PlanHistory } from "./plan-history";
import { NO_PLAN, SharesView } from "./shares";
import { WhatIfView } from "./what-if";
import { Why } from "./why";

const PAST_MS = 120_000;
const AHEAD_MS = 180_000;
/** The views to choose from: a span of the past, or at first the present and the plan. */
const SPANS: readonly [string, number][] = [
  ["now and what is planned", 0],
  ...[2, 12, 24, 48].map((hours): [string, number] => [`the last ${hours} h`, hours * 3_600_000]),
];
const FORGET_EVERY_MS = 10_000;
const NOTHING: Composed = { pieces: new Map(), capacity: [] };

export default function BeamView({ route }: { route: Route }) {
  const live = useLive();
  useTick(1000);
  const session = useContext(SessionContext);
  const beam = live.fleet.beams.get(route.of ?? "");
  const link: LinkName = route.query.get("link") === "return" ? "return" : "forward";
  if (!beam) return <NotHere what={`beam ${route.of}`} />;
  return (
    <div class="page">
      <h1>{beam.name}</h1>
      <nav class="tools" aria-label="Links of the beam">
        {(["forward", "return"] as const).map((one) => (
          <a key={one} href={hashOf("beams", beam.id, { link: one })} aria-current={one === link ? "page" : undefined}>
            {one === "forward" ? "Forward: to the terminals" : "Return: from the terminals"}
          </a>
        ))}
        <span class="note">{bps(link === "forward" ? beam.forward_capacity_bps : beam.return_capacity_bps)}</span>
      </nav>
      {session?.tenant && <OfTenant beam={beam.id} link={link} />}
      {session && !session.tenant && <OfAll beam={beam.id} link={link} />}
      <Interventions key={beam.id} beam={beam.id} />
      <h2>Its terminals</h2>
      <VehicleTable wants={(one) => one.beam === beam.id} />
    </div>
  );
}

interface Which {
  beam: string;
  link: LinkName;
}

/** Whole plans, debts, fairness and what-if concern more than one tenant, and are refused to each. */
function OfTenant({ beam, link }: Which) {
  return (
    <div class="columns">
      <SharesView beam={beam} link={link} />
      <Why beam={beam} link={link} />
    </div>
  );
}

function OfAll({ beam, link }: Which) {
  const live = useLive();
  const { history, failure } = usePlans(beam, link);
  const composed = useMemo(() => {
    const now = live.now();
    return history ? compose(history.all, now - 2 * PAST_MS, now + 3_600_000) : NOTHING;
  }, [history, history?.revision]);
  const [span, setSpan] = useState(0);
  const pastMs = SPANS[span]?.[1] ?? 0;
  const newest = history?.newest;
  return (
    <>
      {failure && <p class="flaw" role="alert">{failure}</p>}
      <section class="card" aria-label="Capacity over time">
        <h2>Capacity: what was planned, and what is</h2>
        <p class="filters">
          <Choice label="Shown" of={SPANS} value={span} onChange={setSpan} />
        </p>
        {pastMs === 0 ? (
          <CapacityView key={link} composed={composed} pastMs={PAST_MS} aheadMs={AHEAD_MS} label="Capacity over time" />
        ) : (
          <PastView key={`${link} ${pastMs}`} beam={beam} link={link} spanMs={pastMs} />
        )}
        <p class="note">
          {newest
            ? `Plan ${newest.plan} of ${utcOn(Date.parse(newest.issued), live.now())} UTC, made because of ${newest.reason}, until ${utcOn(Date.parse(newest.end), live.now())} UTC. The dashed line is now.`
            : NO_PLAN}
        </p>
      </section>
      <div class="columns">
        <Why beam={beam} link={link} />
        <Accounts beam={beam} link={link} />
        <WhatIfView key={`${beam} ${link}`} beam={beam} link={link} />
      </div>
    </>
  );
}

function usePlans(beam: string, link: LinkName) {
  const live = useLive();
  const [history, setHistory] = useState<PlanHistory>();
  const [failure, setFailure] = useState<string>();
  useEffect(() => {
    const ended = new AbortController();
    const made = new PlanHistory(live.client, beam, link, ended.signal);
    const failed = (error: unknown) => {
      if (!ended.signal.aborted) setFailure(textOf(error));
    };
    // One read at a time: over a slow link it takes longer than the interval.
    const reading = new Rereading(async () => {
      await made.read(live.now() - PAST_MS);
      setFailure(undefined);
    }, failed);
    setHistory(made);
    void reading.now();
    const off = live.listen(({ kind, data }) => {
      if (document.hidden || kind !== "plans" || data.beam !== beam || data.link !== link) return;
      void made.add(Number(data.plan)).catch(failed);
    });
    // A stream that was cut, or a hidden page, may have left plans out.
    const timer = setInterval(() => {
      if (document.hidden) return;
      made.forget(live.now() - PAST_MS);
      reading.soon();
    }, FORGET_EVERY_MS);
    return () => {
      reading.close();
      ended.abort();
      off();
      clearInterval(timer);
    };
  }, [live, beam, link]);
  return { history, failure };
}
