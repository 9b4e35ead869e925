/** A beam's capacity in the past hours, from the plans in force at some moments. */

import { useMemo } from "preact/hooks";
import type { LinkName } from "../api/types";
import { useLive } from "../shell/context";
import { utcOn } from "../shell/dates";
import { seconds } from "../shell/format";
import { Failure, useRead } from "../shell/read";
import { CapacityView } from "./capacity-view";
import { SampledPlans } from "./sampled-plans";

interface Props {
  beam: string;
  link: LinkName;
  spanMs: number;
}

export function PastView({ beam, link, spanMs }: Props) {
  const live = useLive();
  const sampled = useMemo(() => new SampledPlans(live.client, beam, link, spanMs), [live, beam, link, spanMs]);
  const found = useRead((signal) => sampled.read(live.now(), signal), `${beam} ${link} ${spanMs}`, sampled.everyMs);
  const composed = found.value;
  const blockedFromMs = sampled.blockedFromMs;
  return (
    <>
      <Failure of={found} />
      {!composed && !found.failure && <p role="status">reading…</p>}
      {composed?.pieces.size === 0 && <p>No plan of this time is kept.</p>}
      {composed && <CapacityView composed={composed} pastMs={spanMs} aheadMs={0} label="Capacity in the past" />}
      <p class="note">
        The plans that held at moments {seconds(sampled.everyMs)} apart: what came and went between two of them is not
        seen. When terminals were blocked is exact
        {blockedFromMs !== undefined && ` from ${utcOn(blockedFromMs, live.now())} UTC on; of the time before, it is not known here`}.
      </p>
    </>
  );
}
