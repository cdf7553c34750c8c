"""What FastQueue is made of: blocks in chunk files, and the meta file that says which of them count.

A queue's directory::

    0000000000000000   chunk: blocks, one behind the other; named by the offset of its first byte, 16 hexadecimal digits
    0000000020000123   the next chunk; offsets go on from one chunk to the next
    fastqueue.meta     JSON: from where to read, to where it is durable, how much that is (`meta`)
    lock               held by the process that has the queue open
    quarantine/        bytes that could not be read, as they were; nothing ever reads or deletes them
    first/             a queue of the same format, of mode `hybrid`: what a stop found in memory
    dead/, failover/   of the exporter, not of the queue

A **block** is an 8-byte header, the data, and a 4-byte CRC, little-endian (`blocks`). An offset is a position in the
stream of all blocks ever written: it never goes back, and never depends on where chunks begin.

What is durable when
--------------------
`sync` writes what is only in memory, syncs the chunks that were written to, and then replaces the meta file (temporary
file, sync, rename, sync of the directory). So meta never points past durable data, and a chunk is removed only after
a meta file that does not need it is durable. Killed or cut off between any two of these steps, the next opening reads
the last durable meta and scans the blocks behind its `writer_offset`: whole ones are adopted, a torn end is moved
aside. What was confirmed after that meta is sent again.

`confirmed` in meta lists ranges behind `reader_offset` that need not be read: batches that were confirmed out of order.
So one batch that its destination never takes holds up its own chunk, and no other.
"""
