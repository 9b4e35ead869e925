import { useEffect, useRef, useState } from "preact/hooks";
import { flawOf } from "./session";

interface Props {
  /** Why a token is asked for again, if it is. */
  reason: string | undefined;
  onToken: (token: string) => void;
}

export function SignIn({ reason, onToken }: Props) {
  const [flaw, setFlaw] = useState<string>();
  const field = useRef<HTMLInputElement>(null);
  useEffect(() => field.current?.focus(), []);

  const submit = (event: Event) => {
    event.preventDefault();
    const token = field.current?.value.trim() ?? "";
    const found = flawOf(token);
    setFlaw(found);
    if (!found) onToken(token);
  };

  const said = flaw ?? reason;
  return (
    <main class="sign-in">
      <h1>Underpass</h1>
      <form onSubmit={submit}>
        <label for="token">Token</label>
        <input
          id="token"
          ref={field}
          type="password"
          autocomplete="off"
          spellcheck={false}
          aria-describedby="token-help"
          aria-invalid={said !== undefined}
        />
        <button type="submit">Sign in</button>
        <p role="alert" class="flaw">
          {said}
        </p>
        <p id="token-help">
          A viewer's or an operator's, from <code>underpass-control token create NAME --role viewer</code>. It is
          kept in this tab only.
        </p>
      </form>
      <p>
        <a href="docs">The API</a>
      </p>
    </main>
  );
}
