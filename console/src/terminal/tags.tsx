/** A terminal's tags: shown to all, set by operators, including its tenant's. */

import { useEffect, useState } from "preact/hooks";
import { textOf } from "../access/listed";
import type { Client } from "../api/client";
import { readToChange } from "../api/revised";
import type { Terminal } from "../api/types";
import { useLive } from "../shell/context";
import { Field, Flaw, Form } from "../shell/form";
import { useMayOperateOwn } from "../shell/may-operate";
import { hashOf } from "../shell/route";

/** Splits "a; b" into two tags. */
export function tagsOf(text: string): string[] {
  return [...new Set(text.split(/[;,]/).map((tag) => tag.trim()))].filter((tag) => tag !== "");
}

/** Somebody else has changed the tags meanwhile, to these. */
class OthersTags extends Error {
  constructor(readonly tags: string[]) {
    super(`Nothing was done, since somebody else was first: by now the tags are: ${tags.join("; ") || "none"}. Set yours again to replace them.`);
  }
}

/** Sets a terminal's tags if they are still the ones that the user saw. */
export async function setTags(client: Client, node: number, seen: string[], wanted: string[]): Promise<void> {
  const path = `v1/terminals/${node}`;
  const { value, revision } = await readToChange<Terminal>(client, path);
  const { tags = [] } = value;
  // Other changes of the terminal do not matter here.
  if (!areSame(tags, seen)) throw new OthersTags(tags);
  await client.send("PUT", `${path}/tags`, { tags: wanted }, revision);
}

function areSame(some: string[], others: string[]): boolean {
  return some.length === others.length && some.every((tag) => others.includes(tag));
}

interface Typed {
  text: string;
  /** The tags that the text is to replace. */
  seen: string[];
}

export function Tags({ terminal }: { terminal: Terminal }) {
  const live = useLive();
  const [flaw, setFlaw] = useState<string>();
  const [typed, setTyped] = useState<Typed>();
  const tags = terminal.tags ?? [];
  const text = tags.join("; ");
  const maySet = useMayOperateOwn();
  // When others change the tags, text that the user has typed and not yet set stays.
  useEffect(() => setTyped((before) => (before && areSame(tagsOf(before.text), before.seen) ? undefined : before)), [text]);
  const set = async () => {
    const wanted = tagsOf(typed?.text ?? text);
    setFlaw(undefined);
    try {
      await setTags(live.client, terminal.node, typed?.seen ?? tags, wanted);
      setTyped((before) => before && { ...before, seen: wanted });
    } catch (error) {
      if (error instanceof OthersTags) {
        const seen = error.tags;
        setTyped((before) => ({ text: before?.text ?? text, seen }));
      }
      setFlaw(textOf(error));
    }
    return false;
  };
  const type = (event: Event) => {
    const { value } = event.currentTarget as HTMLInputElement;
    setTyped((before) => ({ text: value, seen: before?.seen ?? tags }));
  };
  return (
    <section class="card" aria-label="Tags">
      <h2>Tags</h2>
      {tags.length === 0 && <p class="note">It has none.</p>}
      <ul class="key">
        {tags.map((tag) => (
          <li key={tag}>
            <a href={hashOf("terminals", undefined, { tag })}>{tag}</a>
          </li>
        ))}
      </ul>
      {maySet && (
        <Form label="Set the tags" action="Set" send={set}>
          <Field label="Tags, with ; between them" name="tags" maxLength={400} value={typed?.text ?? text} onInput={type} />
        </Form>
      )}
      <Flaw>{flaw}</Flaw>
    </section>
  );
}
