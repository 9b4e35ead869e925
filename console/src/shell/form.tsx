/** Forms that send one request at a time, and show each error beside its field. */

import { type ComponentChildren, createContext, type InputHTMLAttributes } from "preact";
import { useContext, useId, useRef, useState } from "preact/hooks";
import { useFocusInside } from "./focus";

type Members = Readonly<Record<string, string>>;

const Wrong = createContext<Members>({});

interface FormProps {
  /** The form's name, for screen readers. */
  label: string;
  /** The button's text. */
  action: string;
  /** Sends the form; it is emptied if this returns true and the user has not typed since. */
  send: (form: HTMLFormElement) => Promise<boolean>;
  /** Called once the form has been emptied. */
  emptied?: () => void;
  /** What the service found wrong with the last request, by field. */
  wrong?: Members;
  disabled?: boolean;
  /** Whether a button has opened the form: it gets the focus back once the form is gone. */
  opened?: boolean;
  class?: string;
  children: ComponentChildren;
  /** Shown after the button. */
  after?: ComponentChildren;
}

export function Form({ label, action, send, emptied, wrong = {}, disabled = false, opened = false, class: of = "tools", children, after }: FormProps) {
  const [busy, setBusy] = useState(false);
  const self = useFocusInside<HTMLFormElement>(opened);
  // A second click may come before the first has changed the state.
  const sending = useRef(false);
  // Sending over a satellite takes a second or more: a next entry begun meanwhile is not emptied.
  const hasTyped = useRef(false);
  const submit = async (event: Event) => {
    event.preventDefault();
    if (sending.current || disabled) return;
    const form = event.currentTarget as HTMLFormElement;
    sending.current = true;
    hasTyped.current = false;
    setBusy(true);
    try {
      if (!(await send(form))) {
        // A screen reader then reads out the error of the field.
        requestAnimationFrame(() => form.querySelector<HTMLElement>("[aria-invalid=true]")?.focus());
      } else if (!hasTyped.current) {
        form.reset();
        emptied?.();
      }
    } finally {
      sending.current = false;
      setBusy(false);
    }
  };
  return (
    <form ref={self} class={of} aria-label={label} onSubmit={(event) => void submit(event)} onInput={() => void (hasTyped.current = true)}>
      <Wrong.Provider value={wrong}>{children}</Wrong.Provider>
      {/* Not disabled while sending: a keyboard user would lose the focus. */}
      <button type="submit" disabled={disabled} aria-disabled={busy}>
        {action}
      </button>
      {after}
    </form>
  );
}

interface FieldProps {
  label: string;
  name: string;
  /** The service's name for the field, if it differs. */
  member?: string;
}

export function Field({ label, member, ...given }: FieldProps & InputHTMLAttributes) {
  return (
    <Flawed member={member ?? given.name}>
      {(flaw) => (
        <label>
          {label} <input {...given} {...flaw} />
        </label>
      )}
    </Flawed>
  );
}

/** An error of the whole form. The element stays when empty: screen readers read out what enters it. */
export function Flaw({ children }: { children: ComponentChildren }) {
  return (
    <p class="flaw" role="alert">
      {children}
    </p>
  );
}

interface FlawedProps {
  member: string;
  /** Renders the field, with the attributes that mark it as wrong. */
  children: (flaw: { "aria-invalid"?: boolean; "aria-describedby"?: string }) => ComponentChildren;
}

/** A field of any kind, with its error below. */
export function Flawed({ member, children }: FlawedProps) {
  const id = useId();
  const flaw = useContext(Wrong)[member];
  return (
    <span class="field">
      {children(flaw === undefined ? {} : { "aria-invalid": true, "aria-describedby": id })}
      {flaw !== undefined && (
        <span id={id} class="flaw">
          {flaw}
        </span>
      )}
    </span>
  );
}
