// A count is the number of events a query would find.
import assert from 'node:assert/strict'
import { connect, leave, person } from './support.mjs'

const alice = person()
const relay = await connect()
for (let n = 0; n < 7; n++) await relay.publish(alice.note(`${n}`))
assert.equal(await relay.count([{ authors: [alice.key] }], {}), 7)
assert.equal(await relay.count([{ kinds: [0] }], {}), 0)
leave()
