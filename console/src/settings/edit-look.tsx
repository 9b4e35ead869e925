import { useFocusInside } from "../shell/focus";
import { ChangedSettings } from "./changed-settings";
import type { Edit } from "./setting-document";

interface Props {
  /** Whose settings: "Bus 11", "gateway 1". */
  of: string;
  edit: Edit;
  set: () => void;
  leave: () => void;
}

/** What a change of one node's settings would change, before it is set. */
export function EditLook({ of, edit: { changes }, set, leave }: Props) {
  const part = useFocusInside<HTMLElement>();
  const label = `What would change at ${of}`;
  return (
    <section ref={part} tabIndex={-1} aria-label={label}>
      <h3>{label}</h3>
      {changes.length === 0 ? <p>Nothing: it is so already.</p> : <ChangedSettings label={`Changes of ${of}`} changes={changes} />}
      <p class="note">It is on trial as soon as it is there, and rolled back if the hub, or at a hub its terminals, are not heard afterwards.</p>
      <p class="tools">
        <button type="button" disabled={changes.length === 0} onClick={set}>
          Set it
        </button>
        <button type="button" onClick={leave}>
          Leave it
        </button>
      </p>
    </section>
  );
}
