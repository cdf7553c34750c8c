#!lua flags=allow-oom
-- Forgets the entries of a class. ARGV: prefix, class.
local prefix, class = ARGV[1], ARGV[2]
local flows = prefix .. 'flows:' .. class
for _, flow in ipairs(redis.call('ZRANGE', flows, 0, -1)) do
    redis.call('UNLINK', prefix .. 'queue:' .. #class .. ':' .. class .. ':' .. flow)
end
redis.call('UNLINK', flows)
