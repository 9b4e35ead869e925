import type { ComponentChildren } from "preact";
import { useContext } from "preact/hooks";
import type { Session } from "../api/types";
import { SessionContext } from "./context";

interface Props {
  may: (session: Session) => boolean;
  /** What those are told who may not. */
  otherwise: string;
  children?: ComponentChildren;
}

/** What only some may do; nothing, until it is known who asks. */
export function Only({ may, otherwise, children }: Props) {
  const session = useContext(SessionContext);
  if (!session) return null;
  return may(session) ? <>{children}</> : <p>{otherwise}</p>;
}
