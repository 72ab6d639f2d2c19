import type { AuditTrail } from '../../audit/audit-trail.ts';
import { isLoopback } from '../../config/schema/address.ts';
import { ClientAddresses } from '../../downstream/admission/client-address.ts';
import type { RefusalAudit } from '../../downstream/admission/refusal-audit.ts';
import { GatewayError } from '../../errors.ts';
import type { OnRefused } from '../../operator/admin/access.ts';
import { type AdminParts, createAdminApp } from '../../operator/admin/admin-app.ts';
import { createOperatorApp, type OperatorView } from '../../operator/app.ts';
import type { Metrics } from '../../telemetry/metrics.ts';
import { VERSION } from '../../version.ts';
import type { HandlerOf } from '../movable-port.ts';

/** The parts of a gateway that its operator's port shows and changes. */
export interface OperatorHandlerParts
  extends
    Pick<AdminParts, 'port' | 'operators' | 'onOperation' | 'log'>,
    Pick<OperatorView, 'startedAtMs' | 'ready' | 'upstreams'> {
  /** The metrics of this process. */
  readonly metrics: Pick<Metrics, 'countAuthFailure' | 'countLimit'>;
  /** The metrics that are shown. */
  readonly shownMetrics: OperatorView['metrics'];
  readonly refusals: RefusalAudit | undefined;
}

/** Returns the function that makes the handler of the operator's port. */
export function operatorHandlerOf({
  metrics,
  shownMetrics,
  refusals,
  startedAtMs,
  ready,
  upstreams,
  ...parts
}: OperatorHandlerParts): HandlerOf {
  return ({ allowedHosts, trustedProxies }, { host }) => {
    const addresses = new ClientAddresses(trustedProxies);
    const onRefused: OnRefused = (error, incoming) => {
      const reason = `operator ${error}`;
      metrics.countAuthFailure(reason);
      refusals?.record({ error: new GatewayError(error), reason, address: incoming && addresses.of(incoming) });
    };
    const onLimit: AdminParts['onLimit'] = (limit) => metrics.countLimit(limit);
    const app = createOperatorApp({
      metrics: shownMetrics,
      version: VERSION,
      allowedHosts,
      startedAtMs,
      isLocal: isLoopback(host),
      admin: createAdminApp({ ...parts, version: VERSION, onRefused, onLimit }),
      onRefused,
      ready,
      config: () => parts.port.config.state,
      upstreams,
    });
    return { app };
  };
}

/** Returns the function that records the operations of operators in the audit log, if there is one. */
export function operationRecorder(audit: AuditTrail | undefined) {
  return (operator: string, operation: string, target: string | undefined): void => {
    audit?.record({ kind: 'operator', principal: `operator:${operator}`, method: operation, name: target });
  };
}
