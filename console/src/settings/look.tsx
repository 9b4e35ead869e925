import type { ComponentChildren } from "preact";
import { useFocusInside } from "../shell/focus";

interface Props {
  title: string;
  /** The title's level; within a card, one below the card's. */
  heading?: "h2" | "h3";
  /** What would change. */
  children: ComponentChildren;
  note: string;
  /** The text of the button that makes the change. */
  action: string;
  act: () => void;
  /** Whether there is nothing that can be made. */
  isNothing?: boolean;
  leave: () => void;
}

/** What a change would change, shown to the operator, who then makes the change or leaves it. */
export function Look({ title, heading: Heading = "h2", children, note, action, act, isNothing = false, leave }: Props) {
  const part = useFocusInside<HTMLElement>();
  return (
    <section ref={part} tabIndex={-1} aria-label={title}>
      <Heading>{title}</Heading>
      {children}
      <p class="note">{note}</p>
      <p class="tools">
        <button type="button" disabled={isNothing} onClick={act}>
          {action}
        </button>
        <button type="button" onClick={leave}>
          Leave it
        </button>
      </p>
    </section>
  );
}
