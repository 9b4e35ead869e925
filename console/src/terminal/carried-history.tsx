import { useMemo, useState } from "preact/hooks";
import { timeOf } from "../api/time";
import type { Carried, LinkName } from "../api/types";
import { Choice } from "../shell/choice";
import { useLive } from "../shell/context";
import { bps } from "../shell/format";
import { Failure, useRead } from "../shell/read";
import { LineChart } from "./line-chart";
import { carriedColumns, leastEfficiency } from "./series";

const HOUR_S = 3600;
/** A span is read again this many times while it passes, but at most every half minute. */
const READS_IN_TIME = 240;
const LEAST_MS = 30_000;
const SPANS = [
  ["five minutes, as above", 0],
  ["2 hours", 2 * HOUR_S],
  ["12 hours", 12 * HOUR_S],
  ["24 hours", 24 * HOUR_S],
] as const;

interface Props {
  node: number;
  link: LinkName;
}

/** The measured capacity of a link that the service has stored; read when the user chooses a span. */
export function CarriedHistory({ node, link }: Props) {
  const [chosen, setChosen] = useState(0);
  const [span, windowS] = SPANS[chosen] ?? SPANS[0];
  return (
    <>
      <p class="filters">
        <Choice label={`Measured, ${link}, in the last`} of={SPANS} value={chosen} onChange={setChosen} />
      </p>
      {windowS > 0 && <Kept key={span} node={node} link={link} span={span} windowS={windowS} />}
    </>
  );
}

function Kept({ node, link, span, windowS }: Props & { span: string; windowS: number }) {
  const live = useLive();
  const path = `v1/terminals/${node}/carried?link=${link}`;
  const found = useRead(
    (signal) => live.client.all<Carried>(`${path}&since=${timeOf(live.now() - 1000 * windowS)}`, "carried", signal),
    path,
    Math.max(LEAST_MS, (1000 * windowS) / READS_IN_TIME),
  );
  const kept = found.value;
  const columns = useMemo(() => carriedColumns(kept ?? []), [kept]);
  const least = useMemo(() => leastEfficiency(kept ?? []), [kept]);
  return (
    <>
      <Failure of={found} />
      {kept?.length === 0 && <p>Nothing was measured in that time, and no efficiency told.</p>}
      {kept && kept.length > 0 && (
        <>
          <LineChart
            label={`Measured to carry, ${link}`}
            names={["measured to carry"]}
            colours={["ahead"]}
            read={() => ({ columns, outages: [] })}
            format={bps}
            windowS={windowS}
            span={span}
          />
          {least !== undefined && <p>The least efficiency that was told in that time: {least}.</p>}
        </>
      )}
    </>
  );
}
