/** What who is signed in may do. */

import { useContext } from "preact/hooks";
import { SessionContext } from "./context";

/** Tells whether who is signed in may change how beams are run. */
export function useMayOperate(): boolean {
  const isOperator = useMayOperateOwn();
  return isOperator && !useContext(SessionContext)?.tenant;
}

/** Tells whether who is signed in may change what is its tenant's own, if it is a tenant's. */
export function useMayOperateOwn(): boolean {
  const session = useContext(SessionContext);
  return session !== undefined && ["operator", "administrator"].includes(session.role);
}
