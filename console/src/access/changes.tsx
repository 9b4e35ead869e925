import { useState } from "preact/hooks";
import type { AuditEntry } from "../api/types";
import { useLive } from "../shell/context";
import { dated } from "../shell/dates";
import { Failure, useRead } from "../shell/read";
import { Table } from "../shell/table";
import { differences } from "./differences";

const READ_EVERY_MS = 10_000;
const SHOWN = 200;

/** The newest changes, filtered by their target. */
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
          {/* Without a value: the page is drawn again with each reading, and what is being typed stays. */}
          <input placeholder="/v1/terminals/" maxLength={200} onChange={(event) => setTarget(event.currentTarget.value)} />
        </label>
      </p>
      <Failure of={read} />
      {read.value?.next && <p class="count">The newest {SHOWN}; the API has all.</p>}
      <Table label="Changes" columns={["Time (UTC)", "Who", "From", "What", "Change"]}>
        {read.value?.entries.map((entry) => (
          <tr key={entry.id}>
            <td class="number">{dated(Date.parse(entry.time))}</td>
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
      </Table>
    </>
  );
}
