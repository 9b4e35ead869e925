/** Makes a slice from a file, or sets one anew once the operator has seen what would change. */

import { useState } from "preact/hooks";
import { ApiError, type Client } from "../api/client";
import { readToChange } from "../api/revised";
import type { Slice } from "../api/types";
import { useLive } from "../shell/context";
import { Field, Form } from "../shell/form";
import { ChangedLines } from "./changed-lines";
import { type Line, lineDifferences } from "./line-differences";
import { Look } from "./look";
import { comparable, pathOf, setOf, sliceIn } from "./slice-text";

/** The revision of each downloaded slice, by name: its file may replace that revision, not a newer one. */
export type Downloaded = Map<string, number>;

const NOT_FOUND = 404;

interface Props {
  slices: readonly Slice[];
  downloaded: Downloaded;
  change: (work: () => Promise<unknown>) => Promise<boolean>;
}

/** What a file would set anew. */
interface Seen {
  name: string;
  body: Record<string, unknown>;
  revision: number;
  lines: Line[];
}

export function SliceForm({ slices, downloaded, change }: Props) {
  const { client } = useLive();
  const [seen, setSeen] = useState<Seen>();
  const [said, setSaid] = useState<string>();
  const submit = async (form: HTMLFormElement) => {
    const given = new FormData(form);
    const [name, file] = [String(given.get("name")), given.get("file")];
    setSaid(undefined);
    setSeen(undefined);
    let isMade = false;
    await change(async () => {
      const body = await sliceIn(file instanceof File ? file : new Blob());
      const present = await presentOf(client, name);
      if (present) {
        const lines = lineDifferences(comparable(setOf(present.value)), comparable(body));
        if (lines.every(({ kind }) => kind === "same")) setSaid(`${name} is as in the file already.`);
        else setSeen({ name, body, revision: downloaded.get(name) ?? present.revision, lines });
        return;
      }
      await client.send("PUT", pathOf(name), body);
      isMade = true;
      setSaid(`${name} is instantiated: its site's agent runs it.`);
    });
    return isMade;
  };
  const set = async ({ name, body, revision }: Seen) => {
    setSeen(undefined);
    const ok = await change(async () => {
      await client.send("PUT", pathOf(name), body, revision);
      downloaded.delete(name);
    });
    if (ok) setSaid(`${name} is set anew: its site's agent runs it.`);
  };
  return (
    <>
      <Form label="Set a slice" action="Instantiate or configure" send={submit}>
        <Field label="Name" name="name" required maxLength={31} pattern="[a-z][a-z0-9\-]*" autocomplete="off" list="slices" />
        <Field label="JSON" name="file" type="file" required accept=".json" />
      </Form>
      <datalist id="slices">
        {slices.map(({ name }) => (
          <option key={name} value={name} />
        ))}
      </datalist>
      <p role="status">{said}</p>
      {seen && <SliceLook seen={seen} set={() => void set(seen)} leave={() => setSeen(undefined)} />}
    </>
  );
}

function SliceLook({ seen: { name, lines }, set, leave }: { seen: Seen; set: () => void; leave: () => void }) {
  return (
    <Look
      title={`What would change of ${name}`}
      note="Members are sorted. Settings that the file leaves out get their defaults."
      action={`Set ${name} anew`}
      act={set}
      leave={leave}
    >
      <ChangedLines label={`Changed lines of ${name}`} lines={lines} />
    </Look>
  );
}

/** Reads a slice; returns nothing if there is none of this name. */
async function presentOf(client: Client, name: string) {
  try {
    return await readToChange<Slice>(client, pathOf(name));
  } catch (error) {
    if (error instanceof ApiError && error.status === NOT_FOUND) return undefined;
    throw error;
  }
}
