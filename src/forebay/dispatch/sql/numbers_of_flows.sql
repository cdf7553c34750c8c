-- What was done for flows, each number by its name: flow_<kind> <flow>.
SELECT name, value FROM forebay.dispatch_numbers WHERE substr(name, 1, 5) = 'flow_'
