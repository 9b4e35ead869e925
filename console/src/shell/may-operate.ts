/** What who is signed in may do. */

import { useContext } from "preact/hooks";
import type { Session } from "../api/types";
import { SessionContext } from "./context";

/** Tells whether who is signed in may change how beams are run. */
export function useMayOperate(): boolean {
  const session = useContext(SessionContext);
  return isOperator(session) && !session?.tenant;
}

/** Tells whether who is signed in may change what is its tenant's own, if it is a tenant's. */
export function useMayOperateOwn(): boolean {
  return isOperator(useContext(SessionContext));
}

function isOperator(session: Session | undefined): boolean {
  return session !== undefined && ["operator", "administrator"].includes(session.role);
}
