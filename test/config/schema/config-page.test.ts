import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { configPage } from '../../../scripts/config-page.ts';

test('docs/configuration.md is what `npm run schema` writes', () => {
  const file = new URL('../../../docs/configuration.md', import.meta.url);
  assert.equal(readFileSync(file, 'utf8'), configPage());
});

test('the page has the values and defaults of nested settings and of lists', () => {
  const page = configPage();
  for (const row of [
    /^\| `sessions\.idle` \| duration \| `"30m"` \| .+ \|$/m,
    /^\| `limits\.processes` \| 0 to 100000 \| `128` \| .+ \|$/m,
    /^\| `auth\.jwt\[\]\.issuer` \| text \|  \| .+ \|$/m,
    /^\| `isolation` \| `session`, `principal`, `shared`, `call` \| `"session"` \| .+ \|$/m,
    /^\| `cmd` \| `command`, as Goose spells it\. \|$/m,
  ]) {
    assert.match(page, row);
  }
  // A key that is refused with words is no setting.
  assert.doesNotMatch(page, /`auth\.apiKeys\[\]\.key`/);
});
