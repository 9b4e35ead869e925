/** Forms: sent once at a time, with what is wrong beside the field that it is about. */

import { type ComponentChildren, createContext, type InputHTMLAttributes } from "preact";
import { useContext, useId, useRef, useState } from "preact/hooks";

type Members = Readonly<Record<string, string>>;

const Wrong = createContext<Members>({});

interface FormProps {
  /** What it does, for those who do not see it. */
  label: string;
  /** On its button. */
  action: string;
  /** Does it; the form is emptied if that tells that it went well, and if nobody has typed since. */
  send: (form: HTMLFormElement) => Promise<boolean>;
  /** Called once it has been emptied. */
  emptied?: () => void;
  /** What was wrong with which field of what was sent last. */
  wrong?: Members;
  disabled?: boolean;
  class?: string;
  children: ComponentChildren;
  /** Behind the button. */
  after?: ComponentChildren;
}

export function Form({ label, action, send, emptied, wrong = {}, disabled = false, class: of = "tools", children, after }: FormProps) {
  const [busy, setBusy] = useState(false);
  // A second click may come before the first one is seen in the state.
  const sending = useRef(false);
  // Over a satellite it takes a second and more: whoever has begun with the next one goes on with that.
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
        // Whoever does not see it hears what is wrong where the place is.
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
    <form class={of} aria-label={label} onSubmit={(event) => void submit(event)} onInput={() => void (hasTyped.current = true)}>
      <Wrong.Provider value={wrong}>{children}</Wrong.Provider>
      {/* Not disabled while it sends: who uses the keyboard would lose the place. */}
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
  /** The service's name of it, if that is another one. */
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

/** What was wrong as a whole. It stays while it is empty: screen readers tell what comes into it. */
export function Flaw({ children }: { children: ComponentChildren }) {
  return (
    <p class="flaw" role="alert">
      {children}
    </p>
  );
}

interface FlawedProps {
  member: string;
  /** Draws the field, with what says that it is wrong. */
  children: (flaw: { "aria-invalid"?: boolean; "aria-describedby"?: string }) => ComponentChildren;
}

/** A field of any kind, and below it what is wrong with it. */
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
