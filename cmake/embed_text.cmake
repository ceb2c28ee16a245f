# cmake -DIN=FILE -DOUT=HEADER -DNAME=kName -P embed_text.cmake: the text of a file as a C++ string constant.
file(READ "${IN}" text)
file(WRITE "${OUT}" "// Made from a file of this project by cmake/embed_text.cmake.\n#pragma once\n\ninline constexpr char ${NAME}[] = R\"gcomp(${text})gcomp\";\n")
