/** The dated revisions of MCP with `initialize`, oldest first. Dates sort as text, so revisions compare with `<`. Another one is an entry here, and a row in the table below. */
export const LEGACY_REVISIONS = ['2024-11-05', '2025-03-26', '2025-06-18', '2025-11-25'] as const;

export type LegacyRevision = (typeof LEGACY_REVISIONS)[number];

const [OLDEST_LEGACY, ...LATER_LEGACY] = LEGACY_REVISIONS;

export const LATEST_LEGACY: LegacyRevision = LATER_LEGACY.at(-1) ?? OLDEST_LEGACY;

/**
 * The revisions without `initialize`, newest first: each request names its client, capabilities and revision. Another one is an entry here,
 * and a row in the table below.
 */
export const MODERN_REVISIONS = ['2026-07-28'] as const;

export type ModernRevision = (typeof MODERN_REVISIONS)[number];

export const LATEST_MODERN: ModernRevision = MODERN_REVISIONS[0];

const MODERN: ReadonlySet<string> = new Set(MODERN_REVISIONS);

/**
 * *legacy*: revisions with `initialize` and sessions. *modern*: revisions since 2026-07-28, where requests are independent of each
 * other.
 */
export const ERAS = ['legacy', 'modern'] as const;
export type Era = (typeof ERAS)[number];

export function otherEra(era: Era): Era {
  return era === 'legacy' ? 'modern' : 'legacy';
}

export function eraOf(revision: string): Era {
  return isModernRevision(revision) ? 'modern' : 'legacy';
}

export type Revision = LegacyRevision | ModernRevision;

/** The features of messages in a revision. Has every difference between revisions that is not a conversation. */
export interface RevisionFeatures {
  /** A POST body may be an array. */
  readonly batches: boolean;
  /** Clients accept an event with an id and empty data, and reconnect when a stream ends after one. */
  readonly priming: boolean;
  /** Every message over HTTP after `initialize` has the header `MCP-Protocol-Version`. */
  readonly versionHeader: boolean;
  readonly audio: boolean;
  readonly resourceLinks: boolean;
  readonly structuredContent: boolean;
  readonly elicitation: boolean;
  readonly urlElicitation: boolean;
  /** `completion/complete` has `context`. */
  readonly completionContext: boolean;
  /** Sampling messages may hold arrays of content and tool use. */
  readonly samplingTools: boolean;
  /** `tasks/…` methods are part of the protocol, in both directions. */
  readonly coreTasks: boolean;
  /** Tasks are an extension, which peers declare. */
  readonly tasksExtension: boolean;
  /** Clients can say that their roots have changed. */
  readonly rootsListChanged: boolean;
  /** Clients read lists with URIs that are not URLs. Python clients of other revisions refuse a whole list with one. */
  readonly anyUris: boolean;
}

const BASE: RevisionFeatures = {
  batches: false,
  priming: false,
  versionHeader: false,
  audio: false,
  resourceLinks: false,
  structuredContent: false,
  elicitation: false,
  urlElicitation: false,
  completionContext: false,
  samplingTools: false,
  coreTasks: false,
  tasksExtension: false,
  rootsListChanged: true,
  anyUris: false,
};

/** The features of 2025-06-18, which all later revisions have. */
const JUNE_2025: RevisionFeatures = {
  ...BASE,
  versionHeader: true,
  audio: true,
  resourceLinks: true,
  structuredContent: true,
  elicitation: true,
  completionContext: true,
};

const FEATURES: Readonly<Record<Revision, RevisionFeatures>> = {
  '2024-11-05': BASE,
  '2025-03-26': { ...BASE, batches: true, audio: true },
  '2025-06-18': JUNE_2025,
  '2025-11-25': { ...JUNE_2025, priming: true, urlElicitation: true, samplingTools: true, coreTasks: true },
  '2026-07-28': {
    ...JUNE_2025,
    urlElicitation: true,
    samplingTools: true,
    tasksExtension: true,
    rootsListChanged: false,
    anyUris: true,
  },
};

export function featuresOf(revision: Revision): RevisionFeatures {
  return FEATURES[revision];
}

export function isLegacyRevision(text: string | undefined): text is LegacyRevision {
  return LEGACY_REVISIONS.some((revision) => revision === text);
}

export function isModernRevision(text: string | undefined): text is ModernRevision {
  return text !== undefined && MODERN.has(text);
}

export function isRevision(text: string): text is Revision {
  return isLegacyRevision(text) || isModernRevision(text);
}

/** Returns the newest modern revision in a list of a server; undefined if it has none that we support. */
export function latestCommon(listed: readonly unknown[]): ModernRevision | undefined {
  return MODERN_REVISIONS.find((revision) => listed.includes(revision));
}

/** Returns whether a revision is of the modern era, also if it is one that we do not support. */
export function isModernDate(revision: unknown): boolean {
  const date = String(revision);
  return !isLegacyRevision(date) && MODERN_REVISIONS.some((known) => date >= known);
}

/**
 * Returns the revision for the answer to `initialize`: the requested one if we support it, else our latest legacy
 * revision.
 *
 * @see https://modelcontextprotocol.io/specification/2025-11-25/basic/lifecycle#version-negotiation
 */
export function negotiate(asked: string | undefined): LegacyRevision {
  return isLegacyRevision(asked) ? asked : LATEST_LEGACY;
}
