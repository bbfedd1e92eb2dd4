// Package scenario holds the agent's behaviour as scripts: testdata/*.txt, each a story of faults and
// what the aggregators then hold. Everything below a script is real: ZMQ sockets and msgpack between
// engine and agent, gRPC between agent and aggregator. Only the engine's decisions are the script's.
//
// A script is a list of blocks: commands, a line "----", the expected output, an empty line.
// "go test ./agent/scenario -update" rewrites the output. A line that begins with # is a comment;
// {a..b} in a line repeats it for each number.
//
// Declarations come first. What is not declared is pod-a, agg-0 and an agent:
//
//	engine NAME [ranks=N] [form=map|6..12] [hashes=int|bytes] [replies=two|three] [replay=no] [buffer=N]
//	       [topic=T] [metrics] [tier2=observed|inferred|none] [lora=ID:NAME] [scheme=S] [full-reports] [away]
//	aggregator NAME [lease=DURATION] [agents=N]
//	agent [stopped] [max-blocks=N] [clock=DURATION] [engines=NAME,...]
//
// What an engine does. A target is NAME or NAME/RANK:
//
//	publish TARGET [seq=N] [lost] [burnt] [payload=HEX] EVENT; EVENT ...
//	       lost: kept for replay, but not sent; burnt: the number is used up, nothing is sent or kept;
//	       payload: these bytes are sent, the events only name what is in them
//	again TARGET SEQ            a kept message is sent once more
//	raw TARGET FRAME ...        any frames: hex, or - for an empty one
//	cut TARGET                  the sockets close, the process goes on
//	kill TARGET [unseen]        the process ends; unseen: its sockets stay, as behind a proxy
//	open TARGET                 the sockets open: of the same process after cut, of a new one after kill
//	set TARGET [marker=lost|sent] [drop=SEQ,...] [break=N] [mute|answer] [buffer=N]
//	       how replays are answered: replies lost once, broken off once after N, not at all
//	set TARGET [asleep|awake] [blocks=N] [running=N] [started=N] [broken|mended]
//	       what the metrics page says
//
// Events, with an engine's hashes as names. Without tokens each block has its own name as its token:
//
//	store NAMES [parent=NAME] [tokens=LIST|nil|none] [size=N] [medium=M] [group=N] [kind=K] [lora=NAME] [lora-id=N]
//	      [salt=S] [cache-salt=S] [image=ID] [embeds] [pairs] [FIELD:=STRING]
//	remove NAMES [medium=M] [group=N]
//	clear
//	unknown TAG
//	malformed
//
// The rest of the world:
//
//	start|stop agent|AGGREGATOR [as declared]
//	break|freeze|thaw AGGREGATOR   the connection to it is cut, stands still, goes on
//	clock DURATION [AGGREGATOR]    the clock of the agent, or of an aggregator, jumps
//	forget AGGREGATOR TARGET NAME  the index loses a block
//
// Questions end a block. The answer must come, and stay:
//
//	index [AGGREGATOR] [together]  what the aggregator holds, and how certain the agent is
//	ages [AGGREGATOR]              how old the evidence is
//	lookup tokens=LIST [lora=NAME] [AGGREGATOR]
//	counters [ENGINE] NAME ...     readings of the agent's metrics
//	ready [AGGREGATOR]             what it answers at /readyz
//	asked TARGET                   the numbers from which missing messages were asked for
package scenario
