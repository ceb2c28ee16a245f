# Turns what one GoogleTest program prints into one line a test: "PASS name", "FAIL name" or "SKIP name: reason". A test that began and
# never ended is a failure, and so is a program that ran none.

function finish(kind) {
  print kind " " running (kind == "SKIP" ? ": " (reason == "" ? "gives no reason" : reason) : "")
  running = ""; ended++
}

/^\[ RUN      \] /            { running = substr($0, 14); reason = ""; in_reason = 0; next }
running != "" && /^\[       OK \] /  { finish("PASS"); next }
running != "" && /^\[  FAILED  \] /  { finish("FAIL"); next }
running != "" && /^\[  SKIPPED \] /  { finish("SKIP"); next }
# "FILE:LINE: Skipped", the reason, and then "[  SKIPPED ] NAME".
/: Skipped$/                  { in_reason = 1; next }
/^\[  PASSED  \] 0 tests\./      { none = 1 }  # a shard of a program of few
in_reason && NF               { reason = reason (reason == "" ? "" : " ") $0 }

END {
  if (running != "") print "FAIL " running " (the program ended within it)"
  else if (!ended && !none) print "FAIL " program " (no test ran)"
}
