/** The rights of the caller who is signed in. */

import { useContext } from "preact/hooks";
import type { Session } from "../api/types";
import { SessionContext } from "./context";

type May = (session: Session) => boolean;

/** Tells whether the caller may do something; undefined until the caller is known. */
export function useMay(may: May): boolean {
  const session = useContext(SessionContext);
  return session !== undefined && may(session);
}

/** Tells whether the caller may change how beams are run. */
export function useMayOperate(): boolean {
  return useMay(operates);
}

/** Tells whether the caller may change objects of its tenant, if it has one. */
export function useMayOperateOwn(): boolean {
  return useMay(isOperator);
}

export function operates(session: Session): boolean {
  return isOperator(session) && !session.tenant;
}

export function administrates({ role }: Session): boolean {
  return role === "administrator";
}

/** Of the whole system, not only of a tenant's part. */
export function administratesWhole(session: Session): boolean {
  return administrates(session) && !session.tenant;
}

function isOperator({ role }: Session): boolean {
  return role === "operator" || role === "administrator";
}
