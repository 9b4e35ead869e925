import { useState } from "preact/hooks";
import { filled, useListed } from "../access/listed";
import type { AlertTarget } from "../api/types";
import { useLive } from "../shell/context";

/** The webhooks and mail addresses that are told of alerts. */
export function Targets() {
  const live = useLive();
  const { entries, flaw, change } = useListed<AlertTarget>("v1/alert-targets", "targets");
  const [made, setMade] = useState<AlertTarget>();
  const add = async (event: Event) => {
    event.preventDefault();
    const form = event.currentTarget as HTMLFormElement;
    const body = filled(form);
    setMade(undefined);
    const work = async () => setMade(await live.client.post<AlertTarget>("v1/alert-targets", body));
    if (await change(work)) form.reset();
  };
  const remove = (one: AlertTarget) => void change(() => live.client.delete(`v1/alert-targets/${one.id}`));
  return (
    <section aria-labelledby="targets">
      <h2 id="targets">Webhooks and addresses that are told</h2>
      <form class="tools" aria-label="Have a webhook or an address told" onSubmit={(event) => void add(event)}>
        <label>
          Name <input name="name" required maxLength={200} autocomplete="off" />
        </label>
        <label>
          URL (https: or mailto:) <input name="url" type="url" required maxLength={2000} autocomplete="off" />
        </label>
        <button type="submit">Add</button>
      </form>
      <p class="flaw" role="alert">
        {flaw}
      </p>
      <p role="status">
        {made?.secret && !made.url.startsWith("mailto:") && (
          <>
            Messages to {made.name} are signed with <code>{made.secret}</code>. It is not shown again.
          </>
        )}
      </p>
      <ul>
        {entries?.map((one) => (
          <li key={one.id}>
            {one.name}: {one.url}, {one.last_failure ? `the last message failed: ${one.last_failure}` : one.last ? "the last message was taken" : "nothing sent yet"}{" "}
            <button type="button" aria-label={`Tell ${one.name} no more`} onClick={() => remove(one)}>
              Delete
            </button>
          </li>
        ))}
      </ul>
    </section>
  );
}
