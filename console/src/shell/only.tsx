import type { ComponentChildren } from "preact";
import { useContext } from "preact/hooks";
import type { Session } from "../api/types";
import { SessionContext } from "./context";

interface Props {
  may: (session: Session) => boolean;
  /** Shown to all other callers. */
  otherwise: string;
  children?: ComponentChildren;
}

/** Content for some callers only; empty until the caller is known. */
export function Only({ may, otherwise, children }: Props) {
  const session = useContext(SessionContext);
  if (!session) return null;
  return may(session) ? <>{children}</> : <p>{otherwise}</p>;
}
