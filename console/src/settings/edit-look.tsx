import { ChangedSettings } from "./changed-settings";
import { Look } from "./look";
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
  const isNothing = changes.length === 0;
  return (
    <Look
      title={`What would change at ${of}`}
      heading="h3"
      note="It is on trial as soon as it is there, and rolled back if the hub, or at a hub its terminals, are not heard afterwards."
      action="Set it"
      act={set}
      isNothing={isNothing}
      leave={leave}
    >
      {isNothing ? <p>Nothing: it is so already.</p> : <ChangedSettings label={`Changes of ${of}`} changes={changes} />}
    </Look>
  );
}
