#!lua flags=allow-oom
-- Counts the entries of every class. ARGV: prefix. Answers class, count, class, count, ...
local prefix = ARGV[1]
local sizes = {}
for _, class in ipairs(redis.call('SMEMBERS', prefix .. 'classes')) do
    local count = 0
    for _, flow in ipairs(redis.call('ZRANGE', prefix .. 'flows:' .. class, 0, -1)) do
        count = count + redis.call('ZCARD', prefix .. 'queue:' .. #class .. ':' .. class .. ':' .. flow)
    end
    if count > 0 then
        sizes[#sizes + 1] = class
        sizes[#sizes + 1] = count
    else
        redis.call('SREM', prefix .. 'classes', class)
    end
end
return sizes
