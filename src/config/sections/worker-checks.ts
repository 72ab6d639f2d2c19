import type { Document } from '../document/document.ts';
import type { Problem } from '../document/problem.ts';
import type { GatewaySettings } from '../schema/gateway-schema.ts';

/** Returns the problems with settings that a gateway with several workers cannot have. */
export function workerProblems(document: Document, { workers, redis }: GatewaySettings): Problem[] {
  if (workers === 1 || redis === undefined) return [];
  const message = 'needs a gateway without gateway.redis; start a replica for each core instead';
  return [document.problem(['gateway', 'workers'], message, 'value')];
}
