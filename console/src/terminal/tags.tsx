/** What a terminal is grouped by: shown to all, set by operators, those of its tenant too. */

import { useState } from "preact/hooks";
import { textOf } from "../access/listed";
import type { Terminal } from "../api/types";
import { useLive } from "../shell/context";
import { Field, Form } from "../shell/form";
import { useMayOperateOwn } from "../shell/may-operate";
import { hashOf } from "../shell/route";

/** "a; b" are two tags. */
export function tagsOf(text: string): string[] {
  return [...new Set(text.split(/[;,]/).map((tag) => tag.trim()))].filter((tag) => tag !== "");
}

export function Tags({ terminal }: { terminal: Terminal }) {
  const live = useLive();
  const [flaw, setFlaw] = useState<string>();
  const tags = terminal.tags ?? [];
  const maySet = useMayOperateOwn();
  const set = async (form: HTMLFormElement) => {
    const given = new FormData(form).get("tags");
    setFlaw(undefined);
    await live.client
      .send("PUT", `v1/terminals/${terminal.node}/tags`, { tags: tagsOf(String(given)) })
      .catch((error: unknown) => setFlaw(textOf(error)));
    return false;
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
          <Field label="Tags, with ; between them" name="tags" maxLength={400} defaultValue={tags.join("; ")} />
        </Form>
      )}
      <p class="flaw" role="alert">
        {flaw}
      </p>
    </section>
  );
}
