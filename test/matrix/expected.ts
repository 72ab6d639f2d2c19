/**
 * The expected outcome of each feature, by the revisions of both sides and the upstream's transport. The rules:
 * content that both
 * revisions can express is relayed whole, other content is translated, and nothing fails.
 */
import { degraded, HOW, LOSSLESS, NOT_DEFINED, type Outcome } from './outcome.ts';
import { defines, MODERN, type Feature, type Revision, type Transport } from './words.ts';

export interface Cell {
  readonly feature: Feature;
  readonly client: Revision;
  readonly upstream: Revision;
  readonly transport: Transport;
}

function hows(...parts: readonly (readonly [boolean, string])[]): Outcome {
  return degraded(...parts.filter(([isSo]) => isSo).map(([, how]) => how));
}

/** Output schemas and structured content exist since 2025-06-18, and are more than objects since 2026-07-28. */
function list({ client, upstream }: Cell): Outcome {
  return hows(
    [client < '2025-06-18' && upstream >= '2025-06-18', HOW.noOutputSchema],
    [upstream === MODERN && client >= '2025-06-18' && client < MODERN, HOW.wrapped],
    [upstream === '2025-11-25' && client === MODERN, HOW.noTaskSupport],
  );
}

function call({ client, upstream }: Cell): Outcome {
  const isOldClient = client < '2025-06-18' && upstream >= '2025-06-18';
  return hows(
    [client < '2025-03-26' && upstream >= '2025-03-26', HOW.audioAsText],
    [isOldClient, HOW.linkAsText],
    [isOldClient, HOW.structuredAsText],
    [upstream === MODERN && client >= '2025-06-18' && client < MODERN, HOW.wrapped],
  );
}

/** If one side lacks the question, no client is asked, and the upstream gets an error. */
function question({ feature, client, upstream }: Cell, both: Outcome): Outcome {
  const [isClients, isUpstreams] = [defines(client, feature), defines(upstream, feature)];
  if (isClients && isUpstreams) return both;
  if (isClients) return degraded(HOW.upstreamCannot);
  return isUpstreams ? degraded(HOW.clientCannot) : NOT_DEFINED;
}

/**
 * Core tasks and the extension are each relayed whole. For other clients the gateway waits for the end of the
 * extension's tasks.
 */
function tasks(cell: Cell): Outcome {
  const { client, upstream } = cell;
  if (!defines(upstream, 'tasks')) return question(cell, LOSSLESS);
  const isCarried = client === MODERN || client === upstream;
  return isCarried ? LOSSLESS : degraded(HOW.held);
}

export function expected(cell: Cell): Outcome {
  const { feature, client, upstream } = cell;
  switch (feature) {
    case 'list':
      return list(cell);
    case 'call':
      return call(cell);
    case 'completion':
      return hows([client >= '2025-06-18' && upstream < '2025-06-18', HOW.noContext]);
    case 'sampling':
      return hows([client < '2025-11-25' && upstream >= '2025-11-25', HOW.split]);
    case 'elicitation form':
      return question(cell, LOSSLESS);
    case 'elicitation url':
      // Only 2025-11-25 has a notification of completion.
      return question(cell, client === upstream ? LOSSLESS : degraded(HOW.noCompletion));
    case 'tasks':
      return tasks(cell);
    case 'tool error':
    case 'protocol error':
    case 'progress':
    case 'cancel':
    case 'disconnect':
    case 'log':
    case 'resource read':
    case 'template':
    case 'subscribe/update':
    case 'list_changed':
    case 'roots':
    case 'multi-round input':
      return LOSSLESS;
  }
}
