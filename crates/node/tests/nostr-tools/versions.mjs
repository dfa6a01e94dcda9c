// E-3: a newer version takes the place of an older one.
import assert from 'node:assert/strict'
import { connect, leave, now, person, refused, stored } from './support.mjs'

const alice = person()
const relay = await connect()
const profile = (name, age) => alice.sign({ kind: 0, content: JSON.stringify({ name }), created_at: now() - age })
const [old, between, latest] = [profile('old', 20), profile('between', 10), profile('latest', 0)]
assert.equal(await relay.publish(old), '')
assert.equal(await relay.publish(latest), '')
await refused(relay, between, 'replaced: a newer version is known')
assert.deepEqual(await stored(relay, { kinds: [0] }), [latest.id])
leave()
