import { hashOf } from "../shell/route";

/** The name of a gateway, which leads to its page. */
export function GatewayLink({ node }: { node: number }) {
  return <a href={hashOf("gateways", node)}>gateway {node}</a>;
}
