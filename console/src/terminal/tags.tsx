/** What a terminal is grouped by: shown to all, set by operators, those of its tenant too. */

import { useContext, useState } from "preact/hooks";
import type { Terminal } from "../api/types";
import { SessionContext, useLive } from "../shell/context";
import { hashOf } from "../shell/route";

/** "a; b" are two tags. */
export function tagsOf(text: string): string[] {
  return [...new Set(text.split(/[;,]/).map((tag) => tag.trim()))].filter((tag) => tag !== "");
}

export function Tags({ terminal }: { terminal: Terminal }) {
  const live = useLive();
  const session = useContext(SessionContext);
  const [flaw, setFlaw] = useState<string>();
  const tags = terminal.tags ?? [];
  const set = (event: Event) => {
    event.preventDefault();
    const given = new FormData(event.currentTarget as HTMLFormElement).get("tags");
    setFlaw(undefined);
    live.client
      .send("PUT", `v1/terminals/${terminal.node}/tags`, { tags: tagsOf(String(given)) })
      .catch((error: Error) => setFlaw(error.message));
  };
  const maySet = session !== undefined && ["operator", "administrator"].includes(session.role);
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
        <form class="tools" onSubmit={set}>
          <label>
            Tags, with ; between them <input name="tags" maxLength={400} defaultValue={tags.join("; ")} />
          </label>
          <button type="submit">Set</button>
        </form>
      )}
      <p class="flaw" role="alert">
        {flaw}
      </p>
    </section>
  );
}
