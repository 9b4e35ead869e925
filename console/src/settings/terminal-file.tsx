/** Terminals as a CSV file: download; preview, then import of the whole file. */

import { useRef, useState } from "preact/hooks";
import { differences } from "../access/differences";
import { textOf } from "../access/listed";
import { useLive } from "../shell/context";
import { Flaw } from "../shell/form";
import { useMayOperate } from "../shell/may-operate";
import { Table } from "../shell/table";
import { saved } from "./saved";

const PATH = "v1/terminals.csv";
/** The service's limit. */
const MOST_BYTES = 8 << 20;

/** By column. */
type Values = Record<string, unknown>;

interface Preview {
  new: number;
  changed: number;
  unchanged: number;
  wrong: number;
  flaws: { line: number; reason: string }[];
  changes: { line: number; node: number; name: string; kind: "new" | "changed"; before: Values; after: Values }[];
  basis: string;
}

/** The file that was chosen, and the service's preview of it: changes or errors. */
interface Seen {
  file: Blob;
  preview: Preview;
}

export function TerminalFile() {
  const { client } = useLive();
  const mayOperate = useMayOperate();
  const [seen, setSeen] = useState<Seen>();
  const [said, setSaid] = useState<string>();
  const [flaw, setFlaw] = useState<string>();
  const [busy, setBusy] = useState(false);
  /** The file that was chosen last: the preview of an earlier one may come later. */
  const newest = useRef<File>(undefined);

  const work = async (what: () => Promise<void>) => {
    setFlaw(undefined);
    setSaid(undefined);
    setBusy(true);
    try {
      await what();
    } catch (error) {
      setFlaw(textOf(error));
    }
    setBusy(false);
  };
  const download = () => {
    if (!busy) void work(() => saved(client, PATH, "terminals.csv"));
  };
  const look = (event: Event) => {
    const field = event.currentTarget as HTMLInputElement;
    const chosen = field.files?.[0];
    if (!chosen) return;
    newest.current = chosen;
    setSeen(undefined);
    void work(async () => {
      if (chosen.size > MOST_BYTES) throw new Error("The file has more than 8 MiB: divide it.");
      // Read once, so that the import has the same bytes as the preview.
      const file = new Blob([await chosen.arrayBuffer()], { type: "text/csv" });
      const preview = await client.upload<Preview>("POST", `${PATH}/preview`, file);
      if (newest.current === chosen) setSeen({ file, preview });
    });
    // Lets the user choose the same file again once it has been corrected.
    field.value = "";
  };
  const take = ({ file, preview }: Seen) => {
    if (busy) return;
    void work(async () => {
      const done = await client.upload<Preview>("PUT", `${PATH}?basis=${preview.basis}`, file);
      setSeen((now) => (now?.file === file ? undefined : now));
      setSaid(`Done: ${done.new} made, ${done.changed} changed, ${done.unchanged} as they were.`);
    });
  };
  return (
    <>
      <p class="tools">
        <button type="button" aria-disabled={busy} onClick={download}>
          Download all terminals
        </button>
        {mayOperate && (
          <label>
            Look at a CSV file <input type="file" accept=".csv,text/csv" onChange={look} />
          </label>
        )}
      </p>
      {mayOperate && (
        <p class="note">
          A file makes and changes terminals by their node; those without a line stay. Columns that it does not have
          change nothing. Nothing is changed before you have seen what.
        </p>
      )}
      <Flaw>{flaw}</Flaw>
      <p role="status">{busy ? "working…" : said}</p>
      {seen && <Look seen={seen} busy={busy} onTake={() => take(seen)} />}
    </>
  );
}

function Look({ seen, busy, onTake }: { seen: Seen; busy: boolean; onTake: () => void }) {
  const { preview } = seen;
  const count = preview.new + preview.changed;
  return (
    <section aria-label="What the file would change">
      <p>
        {preview.new} to make, {preview.changed} to change, {preview.unchanged} as they are, {preview.wrong} wrong.
      </p>
      {preview.wrong === 0 && count > 0 && (
        <button type="button" aria-disabled={busy} onClick={onTake}>
          Make and change {count}
        </button>
      )}
      {preview.wrong > 0 && <Flaws preview={preview} />}
      {count > 0 && <Changes preview={preview} count={count} />}
    </section>
  );
}

function Flaws({ preview: { flaws, wrong } }: { preview: Preview }) {
  return (
    <>
      <h2>What is wrong</h2>
      <p class="count">
        {flaws.length < wrong ? `The first ${flaws.length} of ${wrong}. ` : ""}A file is taken when none of its lines is
        wrong.
      </p>
      <Table label="Lines that are wrong" columns={[{ number: "Line" }, "Why"]}>
        {flaws.map(({ line, reason }) => (
          <tr key={line}>
            <td class="number">{line}</td>
            <td>{reason}</td>
          </tr>
        ))}
      </Table>
    </>
  );
}

function Changes({ preview: { changes }, count }: { preview: Preview; count: number }) {
  return (
    <>
      <h2>What would change</h2>
      {changes.length < count && (
        <p class="count">
          The first {changes.length} of {count}.
        </p>
      )}
      <Table label="Terminals that would change" columns={[{ number: "Line" }, "Terminal", "What"]}>
        {changes.map(({ line, node, name, kind, before, after }) => (
          <tr key={line}>
            <td class="number">{line}</td>
            <th scope="row">
              {node} {name}
            </th>
            <td>
              {kind === "new" && "new, "}
              {differences(before, after)}
            </td>
          </tr>
        ))}
      </Table>
    </>
  );
}
