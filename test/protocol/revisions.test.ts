import assert from 'node:assert/strict';
import { test } from 'node:test';

import {
  isLegacyRevision,
  isModernRevision,
  LATEST_LEGACY,
  LEGACY_REVISIONS,
  LATEST_MODERN,
  negotiate,
  featuresOf,
} from '../../src/protocol/revisions.ts';

// L-002
test('initialize gets the requested legacy revision, else the latest one', () => {
  for (const revision of LEGACY_REVISIONS) assert.equal(negotiate(revision), revision);
  for (const asked of [LATEST_MODERN, '1900-01-01', undefined]) assert.equal(negotiate(asked), LATEST_LEGACY);
});

test('a revision is of one era', () => {
  for (const revision of LEGACY_REVISIONS) assert.ok(isLegacyRevision(revision) && !isModernRevision(revision));
  assert.ok(isModernRevision(LATEST_MODERN) && !isLegacyRevision(LATEST_MODERN));
  assert.ok(!isModernRevision(undefined) && !isModernRevision('2026-07-29'));
});

// T-016
test('2026-07-28 has no batches, priming, core tasks, changed roots, and all content', () => {
  const { batches, priming, coreTasks, rootsListChanged, ...rest } = featuresOf(LATEST_MODERN);
  assert.ok(!batches && !priming && !coreTasks && !rootsListChanged);
  assert.ok(Object.values(rest).every(Boolean));
});
