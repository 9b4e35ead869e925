import { useState } from "preact/hooks";
import type { AuditEntry } from "../api/types";
import { useLive } from "../shell/context";
import { Failure, useRead } from "../shell/read";
import { differences } from "./differences";

const READ_EVERY_MS = 10_000;
const SHOWN = 200;

/** The newest changes, by what they were made to. */
export function Changes() {
  const { client } = useLive();
  const [target, setTarget] = useState("");
  const read = useRead<{ entries: AuditEntry[]; next?: string }>(
    (signal) => client.get(`v1/audit?limit=${SHOWN}&target=${encodeURIComponent(target)}`, signal),
    target,
    READ_EVERY_MS,
  );
  return (
    <>
      <p class="filters">
        <label>
          Of what begins with{" "}
          <input
            value={target}
            placeholder="/v1/terminals/"
            maxLength={200}
            onChange={(event) => setTarget(event.currentTarget.value)}
          />
        </label>
      </p>
      <Failure of={read} />
      {read.value?.next && <p class="count">The newest {SHOWN}; the API has all.</p>}
      <div class="scroll" tabIndex={0} role="region" aria-label="Changes">
        <table>
          <thead>
            <tr>
              <th scope="col">Time (UTC)</th>
              <th scope="col">Who</th>
              <th scope="col">From</th>
              <th scope="col">What</th>
              <th scope="col">Change</th>
            </tr>
          </thead>
          <tbody>
            {read.value?.entries.map((entry) => (
              <tr key={entry.id}>
                <td class="number">{entry.time.slice(0, 19).replace("T", " ")}</td>
                <td>
                  {entry.actor} ({entry.actor_kind})
                </td>
                <td>{entry.address}</td>
                <td>
                  {entry.action} {entry.target}
                </td>
                <td>{differences(entry.before, entry.after)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </>
  );
}
