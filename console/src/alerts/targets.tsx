import { useState } from "preact/hooks";
import { filled, useListed } from "../access/listed";
import type { AlertTarget } from "../api/types";
import { useLive } from "../shell/context";
import { Field, Flaw, Form } from "../shell/form";

/** No event tells what has become of a message. */
const READ_EVERY_MS = 15_000;

/** The webhooks and mail addresses to which alerts are sent. */
export function Targets() {
  const live = useLive();
  const { entries, flaw, members, change } = useListed<AlertTarget>("v1/alert-targets", "targets", { everyMs: READ_EVERY_MS });
  const [made, setMade] = useState<AlertTarget>();
  // If the new target is refused, the former one's secret stays visible: it cannot be shown again.
  const add = (form: HTMLFormElement) =>
    change(async () => setMade(await live.client.post<AlertTarget>("v1/alert-targets", filled(form))));
  const remove = (one: AlertTarget) => {
    if (confirm(`Tell ${one.name} no more? What it is signed with is lost: another one is made if it is added again.`)) {
      void change(() => live.client.delete(`v1/alert-targets/${one.id}`));
    }
  };
  return (
    <section aria-labelledby="targets">
      <h2 id="targets">Webhooks and addresses that are told</h2>
      <Form label="Have a webhook or an address told" action="Add" send={add} wrong={members}>
        <Field label="Name" name="name" required maxLength={200} autocomplete="off" />
        <Field label="URL (https: or mailto:)" name="url" type="url" required maxLength={2000} autocomplete="off" />
      </Form>
      <Flaw>{flaw}</Flaw>
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
