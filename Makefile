# Short names for what run.py and the tests do.
.PHONY: test demo docs screenshots

test:
	python3 run.py test

demo:
	python3 run.py demo

docs:
	python3 run.py dev
	.venv/bin/python docs/generate.py
	.venv/bin/mkdocs build --strict --site-dir site

# Every page and state, wide and narrow, light and dark, into screenshots/; from them the pictures of
# the documents, into docs/images/.
screenshots:
	python3 run.py test tests/browser/test_every_page.py tests/browser/test_every_state.py \
		tests/browser/test_login.py::test_a_stranger_gets_the_shell_and_the_way_to_the_login
	.venv/bin/python docs/images.py
