import { ApiError } from "../api/client";
import type { Terminal, TerminalSettings } from "../api/types";
import { differences } from "../access/differences";
import { OneSetting } from "../settings/one-setting-form";
import { useLive } from "../shell/context";
import { instant } from "../shell/dates";
import { useMayOperateOwn } from "../shell/may-operate";
import { Failure, useRead } from "../shell/read";

const READ_MS = 15_000;
const BADGES = { waiting: "waiting", trial: "waiting", applied: "up", "rolled-back": "down", refused: "down" } as const;

/** How the service has changed a terminal's configuration, and whether the node has applied that. */
export function SetFromAfar({ terminal }: { terminal: Terminal }) {
  const { node } = terminal;
  const { client } = useLive();
  const mayOperate = useMayOperateOwn();
  const path = `v1/terminals/${node}/settings`;
  const found = useRead(
    (signal) =>
      client.get<TerminalSettings>(path, signal).catch((error: unknown) => {
        if (error instanceof ApiError && error.status === 404) return "nothing" as const;
        throw error;
      }),
    path,
    READ_MS,
  );
  const set = found.value;
  return (
    <section class="card" aria-labelledby="set-from-afar">
      <h2 id="set-from-afar">
        Set from afar {set && set !== "nothing" && <span class={`badge ${BADGES[set.state]}`}>{set.state}</span>}
      </h2>
      <Failure of={found} />
      {set === "nothing" && <p>Nothing: all is as its own configuration has it.</p>}
      {set && set !== "nothing" && (
        <>
          <p>
            Set {instant(Date.parse(set.set))}
            {set.reported && `, said of it ${instant(Date.parse(set.reported.received))}`}. Other than its own
            configuration:
          </p>
          <ul>
            {[...lines("class", set.classes), ...lines("path", set.paths)].map((line) => (
              <li key={line}>{line}</li>
            ))}
          </ul>
          {set.reported?.reason && <p class="flaw">{set.reported.reason}</p>}
        </>
      )}
      {mayOperate && <OneSetting terminal={terminal} />}
    </section>
  );
}

function lines(what: string, entries: TerminalSettings["classes"]): string[] {
  return entries.map(({ name, ...rest }) => `${what} ${name}: ${differences(undefined, rest) || "as it is"}`);
}
