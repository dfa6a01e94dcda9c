// D-12: who asks to vanish leaves nothing behind.
import assert from 'node:assert/strict'
import { connect, leave, person, refused, stored, url } from './support.mjs'

const [leaving, staying] = [person(), person()]
const relay = await connect()
const [gone, kept] = [leaving.note('gone'), staying.note('kept')]
for (const event of [gone, kept]) assert.equal(await relay.publish(event), '')
assert.equal(await relay.publish(leaving.sign({ kind: 62, content: 'farewell', tags: [['relay', url]] })), '')
assert.deepEqual(await stored(relay, { kinds: [1] }), [kept.id])
await refused(relay, gone, 'blocked: its author asked to vanish')
leave()
