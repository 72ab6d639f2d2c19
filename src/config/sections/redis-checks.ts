import type { Document } from '../document/document.ts';
import type { Problem } from '../document/problem.ts';
import type { GatewaySettings } from '../schema/gateway-schema.ts';

/** Returns the problems with settings of `gateway.redis` that contradict each other, or that workers cannot have. */
export function redisProblems(
  document: Document,
  { workers, redis }: Pick<GatewaySettings, 'workers' | 'redis'>,
): Problem[] {
  if (redis === undefined) return [];
  const problems: Problem[] = [];
  const at = (keys: readonly string[], message: string, part?: 'value'): void => {
    problems.push(document.problem(['gateway', ...keys], message, part ?? 'key'));
  };
  if (workers > 1) {
    at(['workers'], 'needs a gateway without gateway.redis; start a replica for each core instead', 'value');
  }
  if (redis.advertise !== undefined && redis.internal === undefined) {
    at(
      ['redis', 'advertise'],
      'needs "internal", the address that this one leads to; without it, the port is any free one',
    );
  }
  if (redis.caFile !== undefined && !redis.url.tls) {
    at(
      ['redis', 'caFile'],
      'the URL is not rediss, so that Redis is not reached over TLS; remove "caFile", or write rediss://',
    );
  }
  return problems;
}
