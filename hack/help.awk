# Prints a makefile's documented targets (`target: ... ## text`) and variables (`## text` on the line
# above `NAME ?= default`).
BEGIN { print "usage: make TARGET [VARIABLE=value ...]\n\nTargets:" }

/^[a-z][a-z-]*:.*## / {
	target = $0
	sub(/:.*/, "", target)
	text = $0
	sub(/.*## /, "", text)
	printf "  %-15s %s\n", target, text
}

/^[A-Z]+ \?=/ && above ~ /^## / {
	value = $0
	sub(/^[A-Z]+ \?= */, "", value)
	if (value != "")
		value = " (default " value ")"
	variables = variables sprintf("  %-15s %s%s\n", $1, substr(above, 4), value)
}

{ above = $0 }

END { printf "\nVariables:\n%s", variables }
